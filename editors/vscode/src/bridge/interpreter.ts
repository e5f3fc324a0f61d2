/** Which Python may run the bridge, in order of the user's word. Pure. */

/** A way to start the bridge. */
export interface Candidate {
  /** Program and the arguments that stand before ours. */
  command: string;
  before: string[];
  /** For people: where this one comes from. */
  origin: string;
  /** The user named it: nothing else may take its place. */
  explicit: boolean;
}

/** What is known about this window. */
export interface Surroundings {
  /** The setting `modeld.python`, "" when not set. */
  setting: string;
  /** The interpreter that the Python extension uses here, "" when there is none. */
  chosen: string;
  windows: boolean;
  /** The home folder, for `~`. */
  home: string;
  /** The first folder of the window, for `${workspaceFolder}`. */
  workspace: string;
}

/** In order. A setting is the only candidate: what the user named is never passed over silently. */
export function candidates(around: Surroundings): Candidate[] {
  const setting = around.setting.trim();
  if (setting) {
    return [{ command: expanded(setting, around), before: [], origin: 'the setting modeld.python', explicit: true }];
  }
  const found: Candidate[] = [];
  if (around.chosen) {
    found.push({ command: around.chosen, before: [], origin: 'the Python extension', explicit: false });
  }
  if (around.windows) {
    found.push({ command: 'py', before: ['-3'], origin: 'the Python launcher', explicit: false });
    found.push({ command: 'python', before: [], origin: 'PATH', explicit: false });
  } else {
    found.push({ command: 'python3', before: [], origin: 'PATH', explicit: false });
    found.push({ command: 'python', before: [], origin: 'PATH', explicit: false });
  }
  return found;
}

function expanded(setting: string, around: Surroundings): string {
  const home = /^~[\\/]/.test(setting) ? around.home + setting.slice(1) : setting;
  const path = home.replaceAll('${workspaceFolder}', around.workspace).replaceAll('${userHome}', around.home);
  const relative = /[\\/]/.test(path) && !/^([\\/]|[A-Za-z]:[\\/])/.test(path);
  return relative && around.workspace ? `${around.workspace}/${path}` : path;
}
