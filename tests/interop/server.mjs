// A proxy server made of the reference, for the client of this crate.
//
// The model is the reference's own scripted one; each of its events is sent without its partial. Tells its port, each
// request, and each answer whose client has left.

import { createServer } from "node:http";

import { job, reference, tell } from "./reference.mjs";

const { scope, token, responses, stallAt } = job();
const { context: normalise, faux, fauxMessage } = await reference(scope);

const streamModel = faux(responses.map(({ content, ...options }) => fauxMessage(content, options)));

/**
 * What is sent of an event.
 *
 * @param {import("@earendil-works/pi-ai").AssistantMessageEvent} event
 * @returns {import("@earendil-works/pi-agent-core").ProxyAssistantMessageEvent}
 */
function strip(event) {
	const { type } = event;
	switch (type) {
		case "start":
			return { type };
		case "text_start":
		case "thinking_start":
			return { type, contentIndex: event.contentIndex };
		case "text_delta":
		case "thinking_delta":
		case "toolcall_delta":
			return { type, contentIndex: event.contentIndex, delta: event.delta };
		case "text_end":
			return { type, contentIndex: event.contentIndex, contentSignature: block(event).textSignature };
		case "thinking_end":
			return { type, contentIndex: event.contentIndex, contentSignature: block(event).thinkingSignature };
		case "toolcall_start":
			return { type, contentIndex: event.contentIndex, id: block(event).id, toolName: block(event).name };
		case "toolcall_end":
			return { type, contentIndex: event.contentIndex, toolCall: event.toolCall };
		case "done":
			return { type, reason: event.reason, usage: event.message.usage };
		case "error":
			return { type, reason: event.reason, errorMessage: event.error.errorMessage, usage: event.error.usage };
	}
}

function block(event) {
	return event.partial.content[event.contentIndex];
}

async function handle(request, response) {
	const { method, url, headers } = request;
	let text = "";
	for await (const piece of request.setEncoding("utf8")) text += piece;
	const body = JSON.parse(text);
	tell({ request: { method, url, authorization: headers.authorization, contentType: headers["content-type"], body } });
	if (headers.authorization !== `Bearer ${token}`) {
		response.writeHead(401, { "content-type": "application/json" });
		response.end(JSON.stringify({ error: "Unauthorized" }));
		return;
	}
	const abort = new AbortController();
	response.on("close", () => {
		abort.abort();
		if (!response.writableFinished) tell({ left: true });
	});
	response.writeHead(200, { "content-type": "text/event-stream" });
	const { model, context, options } = body;
	for await (const event of streamModel(model, normalise(context), { ...options, signal: abort.signal })) {
		response.write(`data: ${JSON.stringify(strip(event))}\n\n`);
		// From here on the client waits in vain.
		if (event.type === stallAt) return;
	}
	response.end();
}

const server = createServer((request, response) => {
	handle(request, response).catch((error) => {
		tell({ failed: String(error.stack) });
		response.destroy();
	});
});
server.listen(0, "127.0.0.1", () => tell({ port: server.address().port }));
// The test holds the other end.
process.stdin.resume().on("end", () => process.exit(0));
