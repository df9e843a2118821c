/** Finds the line of the user's own code that led here, for messages. */

import { fileURLToPath } from "node:url";

/** The library's own code lies below this folder: its frames are not the user's. */
const ownRoot = new URL("..", import.meta.url).href;
const ownPath = fileURLToPath(ownRoot);

/** `file:line` of the first frame outside the library; nothing where there is none. */
export function userLine(): string | undefined {
  const limit = Error.stackTraceLimit;
  Error.stackTraceLimit = 60;
  const { stack = "" } = new Error("where");
  Error.stackTraceLimit = limit;
  for (const line of stack.split("\n").slice(1)) {
    const place = /\(?((?:file:|\/)[^()]*?:\d+):\d+\)?$/.exec(line)?.[1];
    if (!place || place.startsWith(ownRoot) || place.startsWith(ownPath)) continue;
    return place.startsWith("file:")
      ? fileURLToPath(place.replace(/:(\d+)$/, "")) + (/:\d+$/.exec(place)?.[0] ?? "")
      : place;
  }
  return undefined;
}
