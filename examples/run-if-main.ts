/** Lets an example be both a program and a module that tests import. */

import { realpathSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** Runs `main` if the file at this URL is the one that node was given. */
export async function runIfMain(url: string, main: () => Promise<unknown>): Promise<void> {
  const [, started] = process.argv;
  if (started && realpathSync(started) === fileURLToPath(url)) await main();
}
