/** The interpreter that the Python extension uses for a folder. */
import * as vscode from 'vscode';

const PYTHON_EXTENSION = 'ms-python.python';
/** An extension that cannot say within this time is not waited for, in milliseconds. */
const ANSWER_MS = 3000;

interface PythonExtension {
  environments?: { getActiveEnvironmentPath(resource?: vscode.Uri): { path?: string } };
}

/** Its path, or "" without the extension or when it does not answer. */
export async function chosenPython(resource: vscode.Uri | undefined): Promise<string> {
  const extension = vscode.extensions.getExtension<PythonExtension>(PYTHON_EXTENSION);
  if (extension === undefined) {
    return '';
  }
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => resolve(undefined), ANSWER_MS);
  });
  try {
    const found = await Promise.race([extension.activate(), late]);
    return found?.environments?.getActiveEnvironmentPath(resource).path ?? '';
  } catch {
    return ''; // a broken Python extension is not ours to report
  } finally {
    clearTimeout(timer);
  }
}
