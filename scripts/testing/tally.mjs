// @ts-check
/**
 * From one file's records to its counts. Only leaves count: a suite, or a test with tests inside, is no test of
 * its own, though it is a failure of its own when its hook or its body throws.
 */

/**
 * @typedef {object} Tally
 * @property {{ name: string, durationMs: number }[]} passed
 * @property {{ name: string, text: string }[]} failed
 * @property {{ name: string, reason: string }[]} skipped
 * @property {string[]} running names of the tests that started and never ended
 * @property {string[]} notes
 * @property {boolean} isComplete whether the process saw all of its tests through
 */

/**
 * @param {readonly import("./event-log.mjs").TestRecord[]} records
 * @returns {Tally}
 */
export function tally(records) {
  /** @type {Tally} */
  const result = { passed: [], failed: [], skipped: [], running: [], notes: [], isComplete: false };
  /** @type {string[]} the names from the outermost suite to the test that is told of now */
  const path = [];
  /** Whether a result at this nesting has come since the last one at the nesting above. @type {boolean[]} */
  const hasResultAt = [];

  for (const record of records) {
    if (record.type === "end") {
      result.isComplete = true;
    } else if (record.type === "note") {
      result.notes.push(record.text);
    } else if (record.type === "running") {
      result.running.push(record.name);
    } else if (record.type === "named") {
      path.splice(record.nesting, Number.POSITIVE_INFINITY, record.name);
    } else {
      const startedAt = result.running.indexOf(record.name);
      if (startedAt >= 0) result.running.splice(startedAt, 1);
      // Children are told of before their parent, so a result one level down marks this one as a parent.
      const isParent = hasResultAt[record.nesting + 1] === true;
      hasResultAt[record.nesting + 1] = false;
      hasResultAt[record.nesting] = true;
      path.splice(record.nesting, Number.POSITIVE_INFINITY, record.name);
      count(record, path.join(" › "), isParent, result);
    }
  }
  return result;
}

/**
 * @param {import("./event-log.mjs").TestEnded} record
 * @param {string} name
 * @param {boolean} isParent
 * @param {Tally} result
 */
function count(record, name, isParent, result) {
  const { skip, todo, failure } = record;
  if (skip === true) {
    result.failed.push({ name, text: "Skipped without a reason: say why, as in { skip: reason }." });
  } else if (todo === true) {
    result.failed.push({ name, text: "Marked todo without a reason: say why, as in { todo: reason }." });
  } else if (todo !== undefined) {
    result.skipped.push({ name, reason: `todo: ${todo}` });
  } else if (failure) {
    if (failure.kind !== "subtestsFailed") result.failed.push({ name, text: failure.text });
  } else if (skip !== undefined) {
    result.skipped.push({ name, reason: skip });
  } else if (!isParent && !record.isSuite) {
    result.passed.push({ name, durationMs: record.durationMs });
  }
}
