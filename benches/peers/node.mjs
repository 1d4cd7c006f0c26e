// The reference, an npm package, beside the crates: node node.mjs <directory of node_modules> <scope> <workload>...
//
// The model pushes into the package's own event stream. Its events share one partial that is changed in place, as the
// package's providers do it; it waits after each burst, so that the loop takes what is queued. The consumer is the function
// the loop calls with each event.
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const BURST = 64;
const RUNS = 5;
const WARM_UP = 500; // milliseconds: the compiler needs them
const [home, scope, ...works] = process.argv.slice(2);
const load = (path) => import(pathToFileURL(join(resolve(home), "node_modules", scope, path)).href);
const { runAgentLoop } = await load("pi-agent-core/dist/index.js");
const { createAssistantMessageEventStream } = await load("pi-ai/dist/index.js");

const free = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 };
const usage = { ...free, totalTokens: 0, cost: { ...free, total: 0 } };
const model = { id: "m", name: "m", api: "a", provider: "p", baseUrl: "", reasoning: false, input: ["text"], cost: free, contextWindow: 1, maxTokens: 1 };
const user = (content) => ({ role: "user", content, timestamp: 0 });
const assistant = (content) => ({ role: "assistant", content, api: "a", provider: "p", model: "m", usage, stopReason: "stop", timestamp: 0 });
const parameters = { type: "object", properties: { value: { type: "string" } }, required: ["value"] };

// The same as `Work` and `Script` of the crates.
function script(work) {
  const [kind, size] = work.split(":");
  const n = Number(size);
  const turns = { text: 0, turns: n, calls: 1, transcript: 0 }[kind];
  const calls = { text: 0, turns: 1, calls: n, transcript: 0 }[kind];
  const words = { text: n, turns: 1, calls: 1, transcript: 10 }[kind];
  return { turns, calls, words, backlog: kind === "transcript" ? n : 0, asked: 0, called: 0 };
}

async function answer(events, script) {
  const turn = script.asked++;
  const partial = assistant([]);
  events.push({ type: "start", partial });
  if (turn < script.turns) {
    for (let i = 0; i < script.calls; i++) {
      partial.content.push({ type: "toolCall", id: `${turn}-${i}`, name: "noop", arguments: { value: "x" } });
    }
    partial.stopReason = "toolUse";
  } else {
    partial.content.push({ type: "text", text: "" });
    events.push({ type: "text_start", contentIndex: 0, partial });
    for (let i = 1; i <= script.words; i++) {
      partial.content[0].text += "word ";
      events.push({ type: "text_delta", contentIndex: 0, delta: "word ", partial });
      if (i % BURST === 0) await new Promise(setImmediate);
    }
    events.push({ type: "text_end", contentIndex: 0, content: partial.content[0].text, partial });
  }
  events.push({ type: "done", reason: partial.stopReason, message: partial });
  events.end(partial);
}

async function run(work) {
  const s = script(work);
  const execute = async () => {
    s.called++;
    return { content: [{ type: "text", text: "ok" }], details: {} };
  };
  const kib = "x".repeat(1024);
  const messages = Array.from({ length: s.backlog }, (_, i) => (i % 2 ? assistant([{ type: "text", text: kib }]) : user(kib)));
  const tools = [{ name: "noop", label: "noop", description: "", parameters, execute }];
  const context = { systemPrompt: "", messages, tools };
  const stream = async () => {
    const events = createAssistantMessageEventStream();
    void answer(events, s);
    return events;
  };
  let events = 0;
  const count = async () => {
    events++;
  };
  const begun = process.hrtime.bigint();
  const added = await runAgentLoop([user("hi")], context, { model, convertToLlm: (m) => m }, count, undefined, stream);
  const nanoseconds = Number(process.hrtime.bigint() - begun);
  const done = s.asked === s.turns + 1 && s.called === s.turns * s.calls && events >= s.words;
  if (!done || added.at(-1).content[0].text.length !== s.words * 5) throw new Error(`${work}: it did something else`);
  return nanoseconds;
}

for (const work of works) {
  for (const until = Date.now() + WARM_UP; Date.now() < until; ) await run(work);
  for (let i = 0; i < RUNS; i++) {
    console.log(JSON.stringify({ peer: `${scope}/pi-agent-core`, work, nanoseconds: await run(work) }));
  }
}
process.exit(0);
