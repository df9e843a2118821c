// @ts-check
/** What a group's process and the runner say to each other: marks between the files, and an exit code. */

/** The file that ran last needs a process of its own. */
export const unsharedExitCode = 64;

const markEnd = "\u0001\n";
const markStart = "\u0001holdfast test file ";

/**
 * Printed before the file with this index runs.
 *
 * @param {number} index
 */
export function fileMark(index) {
  return `${markStart}${index}${markEnd}`;
}

/**
 * What each file has printed, by index.
 *
 * @param {string} printed
 * @returns {Map<number, string>}
 */
export function splitAtMarks(printed) {
  const sections = printed.split(markStart).slice(1);
  return new Map(
    sections.map((section) => {
      const end = section.indexOf(markEnd);
      return [Number(section.slice(0, end)), section.slice(end + markEnd.length)];
    }),
  );
}

/** @param {string} chunk */
export function hasMark(chunk) {
  return chunk.includes(markStart);
}
