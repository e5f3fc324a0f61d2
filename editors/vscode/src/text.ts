/** Numbers and sentences for people. Pure. */

/** Reported where the bridge's own notice (the same sentence) cannot be shown beside the answer. */
export const ENDINGS = {
  '': '',
  repetition: 'The answer began to repeat itself and was ended. Send a message to go on.',
  nothing: 'The model ended without an answer. Ask in other words, or pick another model.',
  thoughts: 'The model thought and ended without an answer. Ask in other words, or have it think less.',
};

/** Tokens and other counts, with thousands marked. */
export function count(value: number): string {
  return Math.round(value)
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, ',');
}

/** Bytes. */
export function size(bytes: number): string {
  return bytes >= 1e9 ? `${(bytes / 1e9).toFixed(1)} GB` : `${Math.max(1, Math.round(bytes / 1e6))} MB`;
}

/** Seconds, or milliseconds where those say more. */
export function seconds(value: number): string {
  if (value < 1) {
    return `${Math.round(value * 1000)} ms`;
  }
  return value >= 10 ? `${Math.round(value)} s` : `${value.toFixed(1)} s`;
}

/** Names in one breath: "a, b and c". */
export function names(values: readonly string[]): string {
  const last = values.at(-1) ?? '';
  return values.length > 1 ? `${values.slice(0, -1).join(', ')} and ${last}` : last;
}

/** No longer than `most` characters, cut where a person sees it. */
export function shortened(text: string, most: number): string {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}
