// @ts-check
/**
 * The reporter that each test process is given: one line of JSON for each event that counts, and a closing
 * `end`. Without that line the process did not see its tests through, whatever its exit code says.
 */

import { inspect } from "node:util";

/** Stack lines of node itself; the brace that may end one opens the error's properties and stays. */
const nodeFrames = /\n +at [^\n]*\bnode:(?:internal\/|async_hooks)[^\n]*?(?= \{\n|\n|$)/g;

/** node's own summary, which comes as diagnostics too: `tests 12`, `duration_ms 3.5`. */
const nodeCounts = /^(?:tests|suites|pass|fail|cancelled|skipped|todo|duration_ms) [\d.]+$/;

/**
 * @typedef {object} TestEnded
 * @property {"ended"} type
 * @property {string} name
 * @property {number} nesting
 * @property {boolean} isSuite
 * @property {number} durationMs
 * @property {string | true} [skip] the reason, or true where none was given
 * @property {string | true} [todo]
 * @property {{ kind: string, text: string }} [failure] node's failure type, and the error in full
 *
 * @typedef {{ type: "running", name: string, nesting: number }} TestRunning sent the moment that a test starts
 * @typedef {{ type: "named", name: string, nesting: number }} TestNamed sent in order, a parent before its children
 * @typedef {{ type: "note", text: string }} Noted a test's own `t.diagnostic()`, or node's warning about one
 * @typedef {{ type: "end" }} End
 * @typedef {TestEnded | TestRunning | TestNamed | Noted | End} TestRecord
 */

/** @param {AsyncIterable<import("node:test/reporters").TestEvent>} events */
export default async function* eventLog(events) {
  for await (const event of events) {
    const record = recordOf(event);
    if (record) yield `${JSON.stringify(record)}\n`;
  }
  yield `${JSON.stringify({ type: "end" })}\n`;
}

/**
 * @param {import("node:test/reporters").TestEvent} event
 * @returns {TestRecord | undefined}
 */
function recordOf({ type, data }) {
  switch (type) {
    case "test:dequeue":
      return { type: "running", name: data.name, nesting: data.nesting };
    case "test:start":
      return { type: "named", name: data.name, nesting: data.nesting };
    case "test:diagnostic":
      return nodeCounts.test(data.message) ? undefined : { type: "note", text: data.message };
    case "test:pass":
    case "test:fail": {
      const error = "error" in data.details ? data.details.error : undefined;
      return {
        type: "ended",
        name: data.name,
        nesting: data.nesting,
        isSuite: data.details.type === "suite",
        durationMs: data.details.duration_ms,
        ...(data.skip === undefined ? {} : { skip: data.skip || true }),
        ...(data.todo === undefined ? {} : { todo: data.todo || true }),
        ...(error ? { failure: { kind: failureKind(error), text: failureText(error) } } : {}),
      };
    }
    default:
      return undefined;
  }
}

/** @param {Error} error */
function failureKind(error) {
  return "failureType" in error ? String(error.failureType) : "unknown";
}

/**
 * The error that the test threw, in full. node wraps it in one of its own, whose message counts only where a
 * hook failed: then it says which hook.
 *
 * @param {Error} error
 */
function failureText(error) {
  const { cause } = error;
  if (!(cause instanceof Error)) return String(cause ?? error.message);
  // A generated message holds the diff already; printing `actual` and `expected` as well would say it twice.
  const isAssertion = "generatedMessage" in cause && cause.generatedMessage;
  const text = isAssertion ? (cause.stack ?? cause.message) : inspect(cause, { depth: 4 });
  const heading = failureKind(error) === "hookFailed" ? `${error.message}\n` : "";
  return heading + text.replace(nodeFrames, "");
}
