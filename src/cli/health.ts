/** `holdfast health`: for probes. Exit code 0 if a run makes progress or has finished. */

import { type Command, Option } from "commander";
import { healthOf } from "../train/index.js";
import { duration } from "./options.js";

export function addHealth(program: Command, end: (code: number) => void): void {
  program
    .command("health")
    .description("check a run, for probes; exit code 0 if it makes progress or ended normally, else 1")
    .argument("<folder>", "the run's folder, such as runs/NAME")
    .addOption(
      new Option("--limit <time>", "max. time without a heartbeat or without progress")
        .argParser(duration)
        .default(120_000, "120s"),
    )
    .action((folder: string, { limit }: { readonly limit: number }) => {
      const { state, reason, exitCode } = healthOf(folder, { limitMs: limit });
      console.log(`${state}: ${reason}`);
      end(exitCode);
    });
}
