/** Makes an example both a program and a module that tests can import. */

import { realpathSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** Runs `main` if node was started with the file at this URL. */
export async function runIfMain(url: string, main: () => Promise<unknown>): Promise<void> {
  const [, started] = process.argv;
  if (started && realpathSync(started) === fileURLToPath(url)) await main();
}
