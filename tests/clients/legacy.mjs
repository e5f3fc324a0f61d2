// node legacy.mjs SDK_FOLDER PLAN -- AGENT...
// A client on the official TypeScript SDK below version 2, as older editors carry it. Same plan and output as
// conversation.mjs.
import { spawn } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";
import { Readable, Writable } from "node:stream";

const [sdk, planText, , ...command] = process.argv.slice(2);
const acp = await import(pathToFileURL(`${sdk}/dist/acp.js`).href);
const plan = JSON.parse(planText);
const agent = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "inherit"] });
const ended = new Promise((resolve) => agent.on("exit", (code, signal) => resolve({ code, signal })));
const print = (line) => process.stdout.write(JSON.stringify(line) + "\n");

let updates = [];
let session;
let chosen;
const handler = () => ({
  async sessionUpdate({ update }) {
    updates.push({ kind: update.sessionUpdate, text: update.content?.text ?? null });
    if (update.sessionUpdate === "config_option_update") chosen = update;
  },
  async requestPermission({ options }) {
    return { outcome: { outcome: "selected", optionId: options[0].optionId } };
  },
  async readTextFile({ path }) {
    return { content: await readFile(path, "utf8") };
  },
  async writeTextFile({ path, content }) {
    await writeFile(path, content);
    return {};
  },
});
const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
const connection = new acp.ClientSideConnection(handler, stream);

const models = (result) =>
  result.configOptions.find((option) => option.category === "model").options.flatMap((o) => o.options ?? [o]);

const actions = {
  initialize: (step) =>
    connection.initialize({ protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: step.capabilities ?? {} }),
  // a method by the name this SDK has for it; what it has none for is not asked
  ask: (step) => {
    const name = [step.call, `unstable_${step.call}`].find((one) => typeof connection[one] === "function");
    if (!name) return { absent: step.call };
    return connection[name]({ ...(step.params ?? {}), ...(step.bare ? {} : { sessionId: session }) });
  },
  new: async (step) => {
    chosen = await connection.newSession({ cwd: step.cwd, mcpServers: [] });
    session = chosen.sessionId;
    return chosen;
  },
  choose: async (step) => {
    if (step.listed) await until(() => models(chosen).some((o) => o.value.toLowerCase().includes(step.part)));
    const value = models(chosen).find((o) => o.value.toLowerCase().includes(step.part))?.value ?? step.part;
    const params = { sessionId: session, configId: "model", value };
    return connection.setSessionConfigOption(params);
  },
  prompt: (step) =>
    connection.prompt({
      sessionId: step.session ?? session,
      prompt: step.blocks ?? [{ type: "text", text: step.text }],
    }),
  cancel: async (step) => {
    const turn = actions.prompt(step);
    await until(() => updates.some((u) => u.kind === "agent_message_chunk"));
    await connection.cancel({ sessionId: session });
    return turn;
  },
};

async function until(condition) {
  for (let i = 0; i < 6000 && !condition(); i++) await new Promise((resolve) => setTimeout(resolve, 10));
}

for (const step of plan) {
  updates = [];
  try {
    const result = await actions[step.do](step);
    print({ step: step.do, result, updates });
  } catch (error) {
    print({ step: step.do, error: { code: error.code, message: error.message, data: error.data }, updates });
  }
}
agent.stdin.end();
print({ step: "exit", result: await ended, updates: [] });
process.exit(0);
