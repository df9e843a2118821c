/** `holdfast bars`: generates bars from a seed, and checks files of bars. */

import { type Command, Option } from "commander";
import { type BarsSummary, checkBars, generateBars, readBars, writeBars } from "../crossasset/index.js";
import { wholeNumber } from "./options.js";

export function addBars(program: Command): void {
  const bars = program.command("bars").description("generate bars, or check a file of bars");
  bars
    .command("generate")
    .description("write a generated market to a .csv or .parquet file")
    .argument("<file>", "the file to write, .csv or .parquet")
    .addOption(
      new Option("--bars <number>", "number of bars, one per minute")
        .argParser(wholeNumber(1))
        .default(500_000),
    )
    .addOption(
      new Option("--seed <number>", "the seed of the market; the same seed gives the same bars")
        .argParser(wholeNumber(0))
        .default(42),
    )
    .action(async (file: string, { bars: count, seed }: { readonly bars: number; readonly seed: number }) => {
      await writeBars(file, generateBars({ bars: count, seed }));
      console.log(`${file}: ${count.toLocaleString("en")} bars, seed ${seed}`);
    });
  bars
    .command("check")
    .description("read a file of bars and print a summary; the first bad row is an error")
    .argument("<file>", "the file to read, .csv or .parquet")
    .option("--json", "print the summary as one JSON object")
    .action(async (file: string, { json = false }: { readonly json?: boolean }) => {
      const summary = checkBars(await readBars(file));
      console.log(json ? JSON.stringify(summary, undefined, 2) : summaryText(summary));
    });
}

function summaryText(summary: BarsSummary): string {
  const { bars, firstTime, lastTime, gaps, lowestPrice, highestPrice, zeroVolumes, samples } = summary;
  const day = (time: number): string => new Date(time).toISOString().slice(0, 16).replace("T", " ");
  const longest =
    gaps.count > 0 ? `, the longest of ${gaps.longestMinutes.toLocaleString("en")} minutes` : "";
  return [
    `bars      ${bars.toLocaleString("en")}, ${day(firstTime)} to ${day(lastTime)} UTC`,
    `gaps      ${gaps.count.toLocaleString("en")}${longest}`,
    `prices    ${lowestPrice} to ${highestPrice}`,
    `volume    0 in ${zeroVolumes.toLocaleString("en")} bars`,
    `samples   ${samples.count.toLocaleString("en")} at a stride of ${samples.stride}`,
  ].join("\n");
}
