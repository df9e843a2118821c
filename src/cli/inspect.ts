/** `holdfast inspect`: a page that shows runs as they train, or afterwards; or the same in a terminal. */

import { existsSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";
import { type Command, InvalidArgumentError, Option } from "commander";
import { HoldfastError } from "../errors/index.js";
import { type InspectorOptions, openInspector, viewAsText } from "../inspect/index.js";
import { hasDesktop, openBrowser } from "./desktop.js";
import { wholeNumber } from "./options.js";

interface GivenOptions {
  readonly port: number;
  readonly host?: string;
  readonly token?: string;
  readonly open?: boolean;
  readonly text?: boolean;
  readonly watch?: boolean;
}

const highestPort = 65_535;
/** From look to look, in milliseconds. */
const watchEveryMs = 1000;

export function addInspect(program: Command): void {
  program
    .command("inspect")
    .description("show a run in a browser or as text, while it trains or later")
    .argument("[folder]", "a run's folder, such as runs/NAME, or a folder of runs (default: runs)")
    .addOption(
      new Option("--port <number>", "the port of the page; 0 takes a free one").argParser(port).default(0),
    )
    .option(
      "--host <address>",
      "the address to listen at (default: 127.0.0.1); any other address asks visitors for a token",
    )
    .option(
      "--token <text>",
      "the token that visitors must know (default: a random one where --host needs it)",
    )
    .option("--open", "open the page in a browser (default: on a desktop's terminal)")
    .option("--no-open", "print the address and open nothing")
    .option("--text", "print the run as text and exit")
    .option("--watch", "on a terminal: print the text again every second while the run trains")
    .action(async (folder: string | undefined, options: GivenOptions) => {
      const path = folder ?? "runs";
      if (folder === undefined && !existsSync(path)) {
        throw new HoldfastError(
          "BAD_ARGUMENT",
          "There is no folder runs here. Give a run's folder, or a folder of runs.",
        );
      }
      await (options.text || options.watch ? showText(path, options.watch ?? false) : serve(path, options));
    });
}

function port(text: string): number {
  const value = wholeNumber(0)(text);
  if (value > highestPort)
    throw new InvalidArgumentError(`It takes a whole number from 0 to ${highestPort}.`);
  return value;
}

async function serve(root: string, { port, host, token, open }: GivenOptions): Promise<void> {
  const options: InspectorOptions = { root, port, host, token };
  const inspector = await openInspector(options);
  process.stdout.write(`${inspector.url}\n`);
  if (open ?? hasDesktop()) openBrowser(inspector.url);
  await endSignal();
  await inspector.close();
}

function endSignal(): Promise<void> {
  return new Promise((resolve) => {
    for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => resolve());
  });
}

async function showText(path: string, watch: boolean): Promise<void> {
  const { stdout } = process;
  const view = viewAsText(path);
  const columns = (): number => (stdout.isTTY ? Math.max(40, stdout.columns ?? 80) : 80);
  if (!watch || !stdout.isTTY) {
    stdout.write(view.print({ columns: columns() }));
    return;
  }
  for (;;) {
    // Home, and then whatever is left below goes: that flickers less than an empty screen.
    const lines = view.print({ columns: columns() }).replaceAll("\n", "\u001b[K\n");
    stdout.write(`\u001b[H${lines}\u001b[J`);
    if (!view.isLive) return;
    await wait(watchEveryMs);
  }
}
