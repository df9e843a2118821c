/** `holdfast health`: is a run alive, and does it get on? For probes: 0 says that it is, or has ended well. */

import { type Command, Option } from "commander";
import { healthOf } from "../train/index.js";
import { duration } from "./options.js";

export function addHealth(program: Command, end: (code: number) => void): void {
  program
    .command("health")
    .description(
      "say whether a run is well, for probes; exit code 0 if it makes progress or has ended well, else 1",
    )
    .argument("<folder>", "the run's folder, such as runs/NAME")
    .addOption(
      new Option("--limit <time>", "how long the run may be silent, or stay at one step")
        .argParser(duration)
        .default(120_000, "120s"),
    )
    .action((folder: string, { limit }: { readonly limit: number }) => {
      const { state, reason, exitCode } = healthOf(folder, { limitMs: limit });
      console.log(`${state}: ${reason}`);
      end(exitCode);
    });
}
