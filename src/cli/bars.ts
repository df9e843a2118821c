/** `holdfast bars`: makes bars of a market from a seed, and says what there is to know of a file of bars. */

import { type Command, Option } from "commander";
import { type BarsSummary, checkBars, generateBars, readBars, writeBars } from "../crossasset/index.js";
import { wholeNumber } from "./options.js";

export function addBars(program: Command): void {
  const bars = program.command("bars").description("bars of a market: make some, or look at a file of them");
  bars
    .command("generate")
    .description("a market with regimes, made from a seed, as .csv or .parquet")
    .argument("<file>", "where to write them")
    .addOption(
      new Option("--bars <number>", "how many, one a minute").argParser(wholeNumber(1)).default(500_000),
    )
    .addOption(new Option("--seed <number>", "what they follow from").argParser(wholeNumber(0)).default(42))
    .action(async (file: string, { bars: count, seed }: { readonly bars: number; readonly seed: number }) => {
      await writeBars(file, generateBars({ bars: count, seed }));
      console.log(`${file}: ${count.toLocaleString("en")} bars, seed ${seed}`);
    });
  bars
    .command("check")
    .description("read a file of bars, refuse the first row that is none, and sum it up")
    .argument("<file>", ".csv or .parquet")
    .option("--json", "the summary as one JSON object")
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
