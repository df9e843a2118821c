/** Finds the line of the user's code that led here, for messages. */

import { fileURLToPath } from "node:url";

/** A frame in a file. Frames of Node itself have no path: `node:internal/…`. */
const frame = /(?:\(|\s)((?:file:|\/)[^()]*?):(\d+):\d+\)?$/;

/** `file:line` of the first frame outside the library; undefined if there is none. */
export function userLine(): string | undefined {
  const limit = Error.stackTraceLimit;
  Error.stackTraceLimit = 60;
  const { stack = "" } = new Error("where");
  Error.stackTraceLimit = limit;
  const frames = stack.split("\n").flatMap((line) => {
    const [, file = "", number = ""] = frame.exec(line) ?? [];
    return file ? [{ path: file.startsWith("file:") ? fileURLToPath(file) : file, number }] : [];
  });
  // The folder of the library in the stack: of the bundle, of the compiled modules, or of the sources if source maps are enabled.
  const library = frames[0]?.path.replace(/(compile\/trace\/)?[^/]+$/, "");
  const user = frames.find(({ path }) => library !== undefined && !path.startsWith(library));
  return user && `${user.path}:${user.number}`;
}
