/** The stages of a turn, in words. Pure. */
import type { TurnEvent } from '../wire.ts';
import { count, names } from '../text.ts';

/** What happens now; "" once the answer flows. */
export function stageText(event: TurnEvent): string {
  switch (event.type) {
    case 'waiting':
      return event.text;
    case 'queued':
      return `Place ${event.position} in the queue${event.ahead.length > 0 ? `, behind ${names(event.ahead)}` : ''}`;
    case 'loading': {
      const part = `${Math.round(event.fraction * 100)} %`;
      const room = event.unloads ? ` in place of ${event.unloads}` : '';
      return `Loading ${event.model}${room}, ${part}`;
    }
    case 'prefix':
      return event.reused > 0 ? `Reading the prompt, ${count(event.reused)} tokens are warm` : 'Reading the prompt';
    case 'prefill':
      return `Reading the prompt, ${count(event.done)} of ${count(event.total)} tokens`;
    case 'thinking':
      return 'Thinking';
    case 'generating':
      return 'Answering';
    default:
      return '';
  }
}
