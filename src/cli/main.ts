#!/usr/bin/env node
/** The `holdfast` program: runs the command line and ends with its exit code. */

import { run } from "./command.js";
import { guardOutput } from "./output.js";

guardOutput();
process.exitCode = await run(process.argv.slice(2));
