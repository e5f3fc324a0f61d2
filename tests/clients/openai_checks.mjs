// What a program does with the official JavaScript SDK, as checks that any server of the protocol can be put to.
//   node openai_checks.mjs SDK_FOLDER BASE_URL KEY MODEL      prints one JSON object: check -> "" or what was wrong
// The same checks as openai_checks.py, by the same names; what depends on the published types is checked there.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import assert from "node:assert/strict";

const [folder, baseURL, apiKey, model] = process.argv.slice(2);
const { version, exports: entries } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
const entry = entries["."]?.import?.default ?? entries["."]?.import ?? "./index.mjs";
const { default: OpenAI } = await import(pathToFileURL(join(folder, entry)).href);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0, timeout: 40_000 });

const QUESTION = [{ role: "user", content: "What is the capital of France? Answer in one word." }];
const WEATHER = [{ role: "user", content: "What is the weather in Paris? Use the tool." }];
const PARAMETERS = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const TOOL = { type: "function", function: { name: "get_weather", description: "The weather of a city", parameters: PARAMETERS } };
const SCHEMA = {
  type: "object",
  properties: { name: { type: "string" }, people: { type: "integer" } },
  required: ["name", "people"],
  additionalProperties: false,
};

const chat = (messages = QUESTION, options = {}) =>
  client.chat.completions.create({ model, messages, temperature: 0, max_tokens: 24, ...options });
const stream = async (messages = QUESTION, options = {}) => {
  const chunks = [];
  for await (const chunk of await chat(messages, { ...options, stream: true })) chunks.push(chunk);
  return chunks;
};
const textOf = (chunks) => chunks.flatMap((chunk) => chunk.choices.map((choice) => choice.delta.content ?? "")).join("");
const refused = async (work, status) => {
  let answer;
  try {
    answer = await work();
  } catch (error) {
    assert.equal(error.status, status, String(error));
    return error;
  }
  throw new Error(`answered: ${JSON.stringify(answer).slice(0, 120)}`);
};

const CHECKS = {
  async models() {
    const names = [];
    for await (const one of client.models.list()) names.push(one.id);
    assert.ok(names.includes(model), String(names));
    assert.equal((await client.models.retrieve(model)).id, model);
  },
  async whole() {
    const answer = await chat();
    assert.ok(answer.choices[0].message.content);
    assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
  },
  async streamed() {
    const chunks = await stream();
    assert.equal(textOf(chunks), (await chat()).choices[0].message.content);
    assert.ok(["stop", "length"].includes(chunks.at(-1).choices[0].finish_reason));
  },
  async usage_of_a_stream() {
    const chunks = await stream(QUESTION, { stream_options: { include_usage: true } });
    assert.ok(chunks.at(-1).usage.completion_tokens > 0);
  },
  async cached_tokens() {
    const messages = [{ role: "user", content: `${"Remember that. ".repeat(30)}What was it?` }];
    await chat(messages, { max_tokens: 2 });
    assert.ok((await chat(messages, { max_tokens: 2 })).usage.prompt_tokens_details.cached_tokens > 0);
  },
  async bounded() {
    const answer = await chat([{ role: "user", content: "Count to a hundred." }], { max_tokens: 5 });
    assert.equal(answer.choices[0].finish_reason, "length");
    assert.equal(answer.usage.completion_tokens, 5);
  },
  async stopped() {
    const messages = [{ role: "user", content: "Write the alphabet." }];
    const plain = (await chat(messages)).choices[0].message.content;
    const stop = plain.slice(4, 7);
    assert.equal((await chat(messages, { stop: [stop] })).choices[0].message.content, plain.slice(0, plain.indexOf(stop)));
  },
  async seeded() {
    const texts = [];
    for (let n = 0; n < 2; n++) texts.push((await chat(QUESTION, { temperature: 1, seed: 7 })).choices[0].message.content);
    assert.equal(texts[0], texts[1]);
  },
  async parallel() {
    const answers = await Promise.all(Array.from({ length: 8 }, () => chat(QUESTION, { max_tokens: 6 })));
    assert.equal(new Set(answers.map((answer) => answer.choices[0].message.content)).size, 1);
  },
  async hung_up() {
    const messages = [{ role: "user", content: "Tell a very long story about the sea." }];
    const running = await client.chat.completions.create({ model, messages, stream: true });
    for await (const _ of running) break;
    running.controller.abort();
    assert.ok((await chat(QUESTION, { max_tokens: 4 })).choices[0].message.content);
  },
  async json_schema() {
    const messages = [{ role: "user", content: "Paris has 2,000,000 people. Give it as JSON." }];
    const response_format = { type: "json_schema", json_schema: { name: "city", schema: SCHEMA, strict: true } };
    const city = JSON.parse((await chat(messages, { response_format, max_tokens: 100 })).choices[0].message.content);
    assert.deepEqual([typeof city.name, typeof city.people], ["string", "number"]);
  },
  async tool_choice() {
    for (const tool_choice of ["required", { type: "function", function: { name: "get_weather" } }]) {
      const answer = await chat(WEATHER, { tools: [TOOL], tool_choice, max_tokens: 100 });
      assert.equal(answer.choices[0].finish_reason, "tool_calls");
      assert.equal(typeof JSON.parse(answer.choices[0].message.tool_calls[0].function.arguments).city, "string");
    }
  },
  async tools_in_pieces() {
    const options = { tools: [TOOL], tool_choice: "required", parallel_tool_calls: false, max_tokens: 100 };
    const chunks = await stream(WEATHER, options);
    const pieces = chunks.flatMap((chunk) => chunk.choices.flatMap((choice) => choice.delta.tool_calls ?? []));
    assert.ok(pieces[0].id && pieces.length > 1);
    const text = pieces.map((piece) => piece.function.arguments ?? "").join("");
    assert.equal(typeof JSON.parse(text).city, "string");
  },
  async tool_result() {
    const { message } = (await chat(WEATHER, { tools: [TOOL], tool_choice: "required", max_tokens: 100 })).choices[0];
    const results = message.tool_calls.map((call) => ({ role: "tool", tool_call_id: call.id, content: "sunny" }));
    const again = await chat([...WEATHER, message, ...results], { tools: [TOOL], tool_choice: "none" });
    assert.ok(again.choices[0].message.content);
  },
  async completions() {
    const asked = { model, prompt: "One, two, three,", max_tokens: 8, temperature: 0 };
    const whole = (await client.completions.create(asked)).choices[0].text;
    assert.ok(whole.includes("four"), whole);
    let text = "";
    for await (const piece of await client.completions.create({ ...asked, stream: true })) text += piece.choices[0]?.text ?? "";
    assert.equal(text, whole);
  },
  async embeddings() {
    let answer;
    try {
      answer = await client.embeddings.create({ model, input: ["one", "two"] });
    } catch (error) {
      assert.equal(error.status, 400);
      assert.ok(String(error).includes("embedding"), String(error));
      return;
    }
    assert.equal(answer.data.length, 2);
    assert.ok(answer.data[0].embedding.every((value) => typeof value === "number" && Number.isFinite(value)));
  },
  async unknown_model() {
    const error = await refused(() => chat(QUESTION, { model: "no-such-model", max_tokens: 1 }), 404);
    assert.equal(error.code, "model_not_found");
  },
  async wrong_key() {
    const other = new OpenAI({ baseURL, apiKey: "wrong", maxRetries: 0 });
    await refused(() => other.chat.completions.create({ model, messages: QUESTION }), 401);
  },
  async wrong_value() {
    await refused(() => chat(QUESTION, { temperature: "warm" }), 400);
    await refused(() => chat([]), 400);
  },
  async unknown_parameter() {
    const error = await refused(() => chat(QUESTION, { frobnicate: 1 }), 400);
    assert.equal(error.param, "frobnicate");
  },
  async too_long() {
    const error = await refused(() => chat([{ role: "user", content: "word ".repeat(20_000) }]), 400);
    assert.equal(error.code, "context_length_exceeded");
  },
};

const checks = {};
for (const [name, check] of Object.entries(CHECKS)) {
  try {
    await check();
    checks[name] = "";
  } catch (error) {
    checks[name] = `${error.name}: ${String(error.message).replaceAll(/\s+/g, " ").slice(0, 300)}`;
  }
}
console.log(JSON.stringify({ sdk: version, checks }));
process.exit(0);
