/** How the bridge of a window stands. Pure. */
import type { Problem, ProblemKind } from './preflight.ts';

/** `starting` until the first greeting, and again after each death. */
export type BridgeState = 'off' | 'starting' | 'running' | 'failed';

/** What keeps the bridge from running. */
export interface Trouble {
  kind: ProblemKind | 'wire' | 'crashes';
  /** A sentence for people that says what to do. */
  text: string;
  detail: string;
  problem?: Problem;
}

/** Something a person can click to get out of trouble; the value names a command. */
export interface Remedy {
  label: string;
  command: string;
}

/** The ways out of each trouble, the likeliest first. */
export function remedies(trouble: Trouble): Remedy[] {
  const choose = { label: 'Choose Python…', command: 'modeld.choosePython' };
  const install = { label: 'Install modeld', command: 'modeld.install' };
  const log = { label: 'Show Log', command: 'modeld.showLog' };
  const again = { label: 'Try Again', command: 'modeld.restartBridge' };
  switch (trouble.kind) {
    case 'not_found':
    case 'not_executable':
    case 'does_not_run':
    case 'no_answer':
    case 'too_old':
      return [choose, again, log];
    case 'package_missing':
      return [install, choose, log];
    case 'package_old':
      return [{ ...install, label: 'Upgrade modeld' }, choose, log];
    case 'wire':
      return [again, choose, log];
    case 'crashes':
      return [again, log, choose];
  }
}
