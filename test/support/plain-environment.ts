/** The variables of a user's program: it loads dist/lib, which is smaller than the modules that tests load. */
export const plainEnvironment: NodeJS.ProcessEnv = { ...process.env, NODE_OPTIONS: "" };
