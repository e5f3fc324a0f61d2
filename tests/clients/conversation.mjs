// node conversation.mjs SDK_FOLDER PLAN -- AGENT...
// A client on the official TypeScript SDK from version 2 on. PLAN is a JSON list of steps; each step prints one
// JSON line {step, result | error, updates, early}: `early` counts updates that came before the response.
import { spawn } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";
import { Readable, Writable } from "node:stream";

const [sdk, planText, , ...command] = process.argv.slice(2);
const acp = await import(pathToFileURL(`${sdk}/dist/v1/stable/acp.js`).href);
const plan = JSON.parse(planText);
const agent = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "inherit"] });
const ended = new Promise((resolve) => agent.on("exit", (code, signal) => resolve({ code, signal })));
const print = (line) => process.stdout.write(JSON.stringify(line) + "\n");

let updates = [];
let session;
let chosen;
const describe = (update) => ({ kind: update.sessionUpdate, text: update.content?.text ?? null });

const client = acp
  .client({ name: "official-typescript" })
  .onNotification(acp.methods.client.session.update, ({ params }) => {
    updates.push(describe(params.update));
    if (params.update.sessionUpdate === "config_option_update") chosen = params.update;
  })
  .onRequest(acp.methods.client.session.requestPermission, ({ params }) => ({
    outcome: { outcome: "selected", optionId: params.options[0].optionId },
  }))
  .onRequest(acp.methods.client.fs.readTextFile, async ({ params }) => ({ content: await readFile(params.path, "utf8") }))
  .onRequest(acp.methods.client.fs.writeTextFile, async ({ params }) => {
    await writeFile(params.path, params.content);
    return {};
  });

const models = (result) =>
  result.configOptions.find((option) => option.category === "model").options.flatMap((o) => o.options ?? [o]);

const actions = {
  initialize: (c, step) =>
    c.request(acp.methods.agent.initialize, {
      protocolVersion: acp.PROTOCOL_VERSION,
      clientCapabilities: step.capabilities ?? {},
      clientInfo: { name: "official-typescript", version: "1" },
    }),
  new: async (c, step) => {
    const result = await c.request(acp.methods.agent.session.new, { cwd: step.cwd, mcpServers: [] });
    session = result.sessionId;
    chosen = result;
    return result;
  },
  choose: async (c, step) => {
    if (step.listed) await until(() => models(chosen).some((o) => o.value.toLowerCase().includes(step.part)));
    const found = models(chosen).find((o) => o.value.toLowerCase().includes(step.part));
    const value = found?.value ?? step.part;
    return c.request(acp.methods.agent.session.setConfigOption, { sessionId: session, configId: "model", value });
  },
  prompt: (c, step) =>
    c.request(acp.methods.agent.session.prompt, {
      sessionId: step.session ?? session,
      prompt: step.blocks ?? [{ type: "text", text: step.text }],
    }),
  cancel: async (c, step) => {
    const turn = actions.prompt(c, step);
    await until(() => updates.some((u) => u.kind === "agent_message_chunk"));
    await c.notify(acp.methods.agent.session.cancel, { sessionId: session });
    return turn;
  },
  // any method, with the session's id filled in
  ask: (c, step) => c.request(step.method, { ...(step.params ?? {}), ...(step.bare ? {} : { sessionId: session }) }),
  abort: (c, step) => {
    const stop = new AbortController();
    const params = { sessionId: session, prompt: [{ type: "text", text: step.text }] };
    const turn = c.request(acp.methods.agent.session.prompt, params, { cancellationSignal: stop.signal });
    until(() => updates.some((u) => u.kind === "agent_message_chunk")).then(() => stop.abort());
    return turn;
  },
  list: (c) => c.request(acp.methods.agent.session.list, {}),
  load: (c, step) =>
    c.request(acp.methods.agent.session.load, { sessionId: session, cwd: step.cwd, mcpServers: [] }),
  close: (c) => c.request(acp.methods.agent.session.close, { sessionId: session }),
};

async function until(condition) {
  for (let i = 0; i < 6000 && !condition(); i++) await new Promise((resolve) => setTimeout(resolve, 10));
}

const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
await client.connectWith(stream, async (c) => {
  for (const step of plan) {
    updates = [];
    try {
      const result = await actions[step.do](c, step);
      print({ step: step.do, result, updates });
    } catch (error) {
      print({ step: step.do, error: { code: error.code, message: error.message, data: error.data }, updates });
    }
  }
});
agent.stdin.end();
print({ step: "exit", result: await ended, updates: [] });
process.exit(0);
