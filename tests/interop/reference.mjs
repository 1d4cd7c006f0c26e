// The two generations of the reference, behind one face.

/** Loads the packages of `scope`. */
export async function reference(scope) {
	const core = await import(`${scope}/pi-agent-core`);
	const ai = await import(`${scope}/pi-ai`);
	return {
		Agent: core.Agent,
		streamProxy: core.streamProxy,
		// Newer ones send prompt and tools as a message.
		context: ai.normalizeContext ?? ((context) => context),
		/** A model that answers with `responses`, one after the other. */
		faux(responses) {
			if (ai.createFauxCore) {
				const faux = ai.createFauxCore({});
				faux.setResponses(responses);
				return faux.streamSimple;
			}
			const faux = ai.registerFauxProvider({});
			faux.setResponses(responses);
			return (_model, context, options) => ai.streamSimple(faux.getModel(), context, options);
		},
		fauxMessage: ai.fauxAssistantMessage,
	};
}

/** The job that the test gave, as JSON. */
export function job() {
	// Nothing here takes long; and nothing shall be left if the test died.
	setTimeout(() => process.exit(3), 60_000).unref();
	return JSON.parse(process.argv[2]);
}

/** Tells the test something: a line of JSON. */
export function tell(what) {
	process.stdout.write(`${JSON.stringify(what)}\n`);
}
