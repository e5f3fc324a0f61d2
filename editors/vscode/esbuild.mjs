// Bundles the extension: `node esbuild.mjs`. Three bundles: what activation needs, the language client, the chat panel.
import { build } from 'esbuild';

const common = { bundle: true, minify: true, sourcemap: false, legalComments: 'none', logLevel: 'warning' };
const host = { ...common, platform: 'node', format: 'cjs', target: 'node22', external: ['vscode', './language.js'] };

await Promise.all([
  build({ ...host, entryPoints: { extension: 'src/extension.ts', language: 'src/bridge/language.ts' }, outdir: 'dist' }),
  build({
    ...common,
    platform: 'browser',
    format: 'iife',
    target: 'chrome138',
    entryPoints: { panel: 'src/webview/main.ts' },
    outdir: 'dist',
  }),
]);
