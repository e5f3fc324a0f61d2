/** Runs interpreters to see which can run the bridge. */
import { execFile } from 'node:child_process';
import type { Candidate } from './interpreter.ts';
import { judge, nearest, PROBE, PROBE_MS, type Ended, type Launch, type Problem } from './preflight.ts';

/** What the looks came to: a launch, or the problem nearest to working. */
export interface Found {
  launch?: Launch;
  problem?: Problem;
}

/** The first candidate that can run the bridge. `folder` is where the processes run: never the workspace. */
export async function firstWorking(
  candidates: readonly Candidate[],
  folder: string,
  environment: NodeJS.ProcessEnv,
): Promise<Found> {
  const problems: Problem[] = [];
  for (const candidate of candidates) {
    const { launch, problem } = judge(candidate, await probe(candidate, folder, environment));
    if (launch !== undefined) {
      return { launch };
    }
    if (problem !== undefined) {
      problems.push(problem);
    }
  }
  const problem = nearest(problems);
  return problem === undefined ? {} : { problem };
}

function probe(candidate: Candidate, folder: string, environment: NodeJS.ProcessEnv): Promise<Ended> {
  return new Promise((resolve) => {
    const options = { cwd: folder, env: environment, timeout: PROBE_MS, windowsHide: true, killSignal: 'SIGKILL' } as const;
    execFile(candidate.command, [...candidate.before, '-c', PROBE], options, (error, stdout, stderr) => {
      const failed = error as (Error & { code?: unknown; killed?: boolean }) | null;
      resolve({
        spawnError: typeof failed?.code === 'string' ? failed.code : '',
        exitCode: failed === null ? 0 : typeof failed.code === 'number' ? failed.code : null,
        timedOut: failed?.killed === true,
        output: stdout,
        errors: stderr,
      });
    });
  });
}
