/** Judges an interpreter before the bridge is started, so that what is wrong is said with a way out. Pure. */
import type { Candidate } from './interpreter.ts';

/** Least Python of the bridge. */
export const LEAST_PYTHON: readonly [number, number] = [3, 11];
/** A look that takes longer than this is given up, in milliseconds. */
export const PROBE_MS = 15_000;

/**
 * Run by the candidate with `-c`: one JSON line about itself. It must run on any Python, also 2.7, so that an old one is
 * named as old. A bridge in an environment of its own (pipx) is found by its command `acp-bridge`.
 */
export const PROBE = [
  'import json, os, sys',
  'look = {"executable": sys.executable, "version": list(sys.version_info[:3]), "package": False, "lsp": False}',
  'try:',
  '    from importlib.util import find_spec',
  '    look["package"] = find_spec("acp_bridge") is not None',
  '    faces = [find_spec("acp_bridge." + name) for name in ("faces", "lsp")] if look["package"] else []  # now, 0.1.0',
  '    look["lsp"] = any(face is not None for face in faces)',
  'except Exception as error:',
  '    look["problem"] = str(error)',
  'try:',
  '    import shutil',
  '    look["command"] = shutil.which("acp-bridge") or ""',
  'except Exception:',
  '    look["command"] = ""',
  'print("\\n" + json.dumps(look))',
].join('\n');

/** `-P`: the folder the editor works in must not be able to bring its own modules. */
const MODULE = ['-P', '-m', 'acp_bridge', 'lsp'];

/** How a probe process ended. */
export interface Ended {
  /** The error code of the spawn ("ENOENT", "EACCES"), "" when it ran. */
  spawnError: string;
  exitCode: number | null;
  timedOut: boolean;
  output: string;
  errors: string;
}

export type ProblemKind =
  | 'not_found'
  | 'not_executable'
  | 'does_not_run'
  | 'no_answer'
  | 'too_old'
  | 'package_missing'
  | 'package_old';

/** Why this candidate cannot serve. `text` is for people and says what to do; `detail` is what the process said. */
export interface Problem {
  kind: ProblemKind;
  candidate: Candidate;
  text: string;
  detail: string;
  /** The interpreter's own path, where it reported one. */
  executable: string;
}

/** A command line that starts the bridge. */
export interface Launch {
  command: string;
  arguments: string[];
  origin: string;
  version: string;
}

/** One of the two. */
export interface Verdict {
  launch?: Launch;
  problem?: Problem;
}

/** What the probe's end means. */
export function judge(candidate: Candidate, ended: Ended): Verdict {
  const problem = (kind: ProblemKind, text: string, executable = ''): Verdict => ({
    problem: { kind, candidate, text, detail: (ended.errors || ended.output).trim().slice(-2000), executable },
  });
  const named = `${candidate.command} (from ${candidate.origin})`;
  if (ended.spawnError === 'ENOENT' || ended.spawnError === 'ENOTDIR') {
    return problem('not_found', `There is no Python at ${named}.`);
  }
  if (ended.spawnError) {
    return problem('not_executable', `${named} cannot be started (${ended.spawnError}).`);
  }
  if (ended.timedOut) {
    return problem('no_answer', `${named} gave no answer within ${PROBE_MS / 1000} seconds.`);
  }
  const look = lookOf(ended.output);
  if (ended.exitCode !== 0 || look === undefined) {
    return problem('does_not_run', `${named} is not a Python that runs (exit code ${ended.exitCode ?? 'none'}).`);
  }
  return judgeLook(candidate, look, problem);
}

function judgeLook(
  candidate: Candidate,
  look: Look,
  problem: (kind: ProblemKind, text: string, executable?: string) => Verdict,
): Verdict {
  const version = look.version.join('.');
  if (look.package && look.lsp && !older(look.version)) {
    const launch = { command: candidate.command, arguments: [...candidate.before, ...MODULE] };
    return { launch: { ...launch, origin: candidate.origin, version } };
  }
  if (look.command && !look.package && !candidate.explicit) {
    return { launch: { command: look.command, arguments: ['lsp'], origin: 'acp-bridge on PATH', version: '' } };
  }
  const least = LEAST_PYTHON.join('.');
  if (older(look.version)) {
    return problem('too_old', `${candidate.command} is Python ${version}; modeld needs ${least} or newer.`, look.executable);
  }
  if (look.package) {
    return problem('package_old', `The modeld in ${look.executable} is too old for this extension.`, look.executable);
  }
  return problem('package_missing', `modeld is not installed in ${look.executable} (Python ${version}).`, look.executable);
}

interface Look {
  executable: string;
  version: number[];
  package: boolean;
  lsp: boolean;
  command: string;
}

/** The last line that is ours: a site customisation may have printed before it. */
function lookOf(output: string): Look | undefined {
  for (const line of output.trim().split(/\r?\n/).reverse()) {
    try {
      const look = JSON.parse(line) as Partial<Look> | null;
      if (look !== null && Array.isArray(look.version) && typeof look.executable === 'string') {
        return { package: false, lsp: false, command: '', ...look } as Look;
      }
    } catch {
      continue; // somebody else's line
    }
  }
  return undefined;
}

function older(version: readonly number[]): boolean {
  const [major = 0, minor = 0] = version;
  return major < LEAST_PYTHON[0] || (major === LEAST_PYTHON[0] && minor < LEAST_PYTHON[1]);
}

/** How near to working each problem is: the nearest is the one to tell. */
const NEARNESS: readonly ProblemKind[] = [
  'not_found',
  'not_executable',
  'does_not_run',
  'no_answer',
  'too_old',
  'package_missing',
  'package_old',
];

/** The one problem worth telling of several. */
export function nearest(problems: readonly Problem[]): Problem | undefined {
  return [...problems].sort((a, b) => NEARNESS.indexOf(b.kind) - NEARNESS.indexOf(a.kind))[0];
}

/** The command line that installs or upgrades modeld, as arguments. The engine is the prebuilt one. */
export function installArguments(problem: Problem): string[] | undefined {
  if (!problem.executable || (problem.kind !== 'package_missing' && problem.kind !== 'package_old')) {
    return undefined;
  }
  return [problem.executable, '-m', 'pip', 'install', '--upgrade', 'modeld[openvino]'];
}
