/** `holdfast inspect`: serves a page that shows runs, or prints a run as text. */

import { existsSync } from "node:fs";
import { setTimeout as wait } from "node:timers/promises";
import { type Command, InvalidArgumentError, Option } from "commander";
import { HoldfastError } from "../errors/index.js";
import { type InspectorOptions, openInspector, viewAsText } from "../inspect/index.js";
import { hasDesktop, openBrowser } from "./desktop.js";
import { wholeNumber } from "./options.js";

interface CommandOptions {
  readonly port: number;
  readonly host?: string;
  readonly token?: string;
  readonly open?: boolean;
  readonly text?: boolean;
  readonly watch?: boolean;
}

const maxPort = 65_535;
/** The interval between two prints, in milliseconds. */
const watchIntervalMs = 1000;

export function addInspect(program: Command): void {
  program
    .command("inspect")
    .description("show a run in a browser or as text, during or after training")
    .argument("[folder]", "a run's folder, such as runs/NAME, or a folder of runs (default: runs)")
    .addOption(
      new Option("--port <number>", "the port of the page; 0 selects a free port").argParser(port).default(0),
    )
    .option(
      "--host <address>",
      "the address to listen on (default: 127.0.0.1); any other address requires a token",
    )
    .option("--token <text>", "the token that clients must send (default: random, if --host requires one)")
    .option("--open", "open the page in a browser (default: on a desktop)")
    .option("--no-open", "only print the address")
    .option("--text", "print the run as text and exit")
    .option("--watch", "print the text again every second while the run trains; needs a terminal")
    .action(async (folder: string | undefined, options: CommandOptions) => {
      const path = folder ?? "runs";
      if (folder === undefined && !existsSync(path)) {
        throw new HoldfastError(
          "BAD_ARGUMENT",
          "The folder runs does not exist. Pass a run's folder or a folder of runs.",
        );
      }
      await (options.text || options.watch ? showText(path, options.watch ?? false) : serve(path, options));
    });
}

function port(text: string): number {
  const value = wholeNumber(0)(text);
  if (value > maxPort) throw new InvalidArgumentError(`Expected a whole number from 0 to ${maxPort}.`);
  return value;
}

async function serve(root: string, { port, host, token, open }: CommandOptions): Promise<void> {
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
    // Overwriting from the top flickers less than clearing the screen.
    const lines = view.print({ columns: columns() }).replaceAll("\n", "\u001b[K\n");
    stdout.write(`\u001b[H${lines}\u001b[J`);
    if (!view.isLive) return;
    await wait(watchIntervalMs);
  }
}
