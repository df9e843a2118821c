/** Finds the line of the user's own code that led here, for messages. */

import { fileURLToPath } from "node:url";

/** A frame in a file. Frames of Node itself have no path: `node:internal/…`. */
const frame = /(?:\(|\s)((?:file:|\/)[^()]*?):(\d+):\d+\)?$/;

/** `file:line` of the first frame outside the library; nothing where there is none. */
export function userLine(): string | undefined {
  const limit = Error.stackTraceLimit;
  Error.stackTraceLimit = 60;
  const { stack = "" } = new Error("where");
  Error.stackTraceLimit = limit;
  const places = stack.split("\n").flatMap((line) => {
    const [, file = "", number = ""] = frame.exec(line) ?? [];
    return file ? [{ path: file.startsWith("file:") ? fileURLToPath(file) : file, number }] : [];
  });
  // The library's folder as the stack names it: that of the bundle, of the compiled modules, or of the sources if maps are followed.
  const own = places[0]?.path.replace(/(compile\/trace\/)?[^/]+$/, "");
  const user = places.find(({ path }) => own !== undefined && !path.startsWith(own));
  return user && `${user.path}:${user.number}`;
}
