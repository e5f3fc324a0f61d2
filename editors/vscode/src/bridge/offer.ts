/** What a bridge says of itself in its answer to `initialize`. Pure. */
import type { Offer } from '../wire.ts';

/** The offer, or undefined when the process is no bridge, or one from before the wire had a number. */
export function readOffer(experimental: unknown): Offer | undefined {
  const offer = (experimental as { modeld?: Partial<Offer> } | null | undefined)?.modeld;
  if (typeof offer?.wire !== 'number') {
    return undefined;
  }
  return { wire: offer.wire, version: String(offer.version ?? ''), methods: offer.methods ?? [] };
}
