/** A time limit for synchronous work on untrusted patterns and templates: a regular expression may backtrack for hours. */

import { type Context, createContext, Script } from "node:vm";
import { HoldfastError } from "../errors/index.js";

let sandbox: { readonly context: Context; readonly script: Script } | undefined;

/**
 * Runs a function, and ends it after a time. V8 interrupts loops and regular expressions, which no promise or timer could. `describe` says
 * for the message what took too long. A limit inside a limit is left to the outer one.
 */
export function withDeadline<Result>(limitMs: number, describe: () => string, run: () => Result): Result {
  if (isRunning) return run();
  sandbox ??= { context: createContext({}), script: new Script("call()") };
  const { context, script } = sandbox;
  let result: Result | undefined;
  context["call"] = () => {
    result = run();
  };
  isRunning = true;
  try {
    script.runInContext(context, { timeout: Math.ceil(limitMs) });
    return result as Result;
  } catch (error) {
    if ((error as NodeJS.ErrnoException | undefined)?.code !== "ERR_SCRIPT_EXECUTION_TIMEOUT") throw error;
    throw new HoldfastError(
      "BAD_FILE",
      `${describe()} took longer than ${Math.ceil(limitMs)} ms, and was stopped.`,
      {
        numbers: { limitMs: Math.ceil(limitMs) },
        cause: error,
      },
    );
  } finally {
    isRunning = false;
    context["call"] = undefined;
  }
}

let isRunning = false;
