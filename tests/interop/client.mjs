// The reference's `streamProxy`, against the server of this crate.
//
// Tells each event, then the final message; or, for an agent, its messages.

import { job, reference, tell } from "./reference.mjs";

const { scope, url, token, model, context, options, abortAt, prompt } = job();
const { Agent, context: normalise, streamProxy } = await reference(scope);

if (prompt === undefined) {
	await stream();
} else {
	await run();
}

async function stream() {
	const abort = new AbortController();
	const stream = streamProxy(model, normalise(context), {
		...options,
		proxyUrl: url,
		authToken: token,
		signal: abort.signal,
	});
	for await (const { type, contentIndex, delta } of stream) {
		tell({ type, contentIndex, delta });
		if (type === abortAt) abort.abort();
	}
	tell({ final: await stream.result() });
}

async function run() {
	const tools = context.tools.map((tool) => ({
		...tool,
		label: tool.name,
		execute: async (_id, args) => ({ content: [{ type: "text", text: JSON.stringify(args) }], details: {} }),
	}));
	const agent = new Agent({
		initialState: { systemPrompt: context.systemPrompt, model, tools },
		streamFn: (model, context, options) => streamProxy(model, context, { ...options, proxyUrl: url, authToken: token }),
	});
	await agent.prompt(prompt);
	tell({ messages: agent.state.messages });
}
