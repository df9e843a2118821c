#!/usr/bin/env node
/** The `holdfast` program: runs the command line and ends with its exit code. */

import { run } from "./command.js";

// Who reads our output may have seen enough, as `head` has.
process.stdout.on("error", (error: NodeJS.ErrnoException) => {
  if (error.code === "EPIPE") process.exit();
  throw error;
});

process.exitCode = await run(process.argv.slice(2));
