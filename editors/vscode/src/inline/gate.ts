/** When ghost text is asked for at all. Pure. */

/** What is known at a keystroke. */
export interface Moment {
  enabled: boolean;
  scheme: string;
  language: string;
  disabledLanguages: readonly string[];
  /** A turn of this window runs: it comes first. */
  busy: boolean;
  /** The bridge runs and modeld answers. */
  serving: boolean;
}

/** Only files and unsaved documents: the chat's own input box is a document too. */
const SCHEMES = new Set(['file', 'untitled', 'vscode-remote']);

/** Whether to ask. Whoever asked by a key gets the same answer: off is off. */
export function mayAsk(moment: Moment): boolean {
  return (
    moment.enabled &&
    moment.serving &&
    !moment.busy &&
    SCHEMES.has(moment.scheme) &&
    !moment.disabledLanguages.includes(moment.language) &&
    moment.language !== 'scminput'
  );
}
