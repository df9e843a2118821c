/** `holdfast serve`: serves a language model over HTTP, for clients of OpenAI's API. */

import { type Command, Option } from "commander";
import { withFileError } from "../../data/index.js";
import { exitCodes, HoldfastError } from "../../errors/index.js";
import { readRegularFile } from "../../files/index.js";
import { openModelServer } from "../../serve/index.js";
import { stopOnSignals } from "../../train/index.js";
import type { Bytes } from "../../units/index.js";
import { duration, size, wholeNumber } from "../options.js";
import { type ModelOptions, openModel, withModelOptions } from "./open-model.js";
import { StatusLine } from "./status-line.js";

interface CommandOptions extends ModelOptions {
  readonly name?: string;
  readonly host: string;
  readonly port: number;
  readonly token?: string;
  readonly tokenFile?: string;
  readonly slots: number;
  readonly maxWaiting: number;
  readonly maxPrompt?: number;
  readonly maxTokens?: number;
  readonly maxBody?: Bytes;
  readonly timeout: number;
  readonly drain: number;
}

/** Time for closing the server and the device after the last text, before a second thread ends the process. */
const closingMs = 10_000;
const maxTokenBytes = 4096;

export function addServe(program: Command, end: (code: number) => void): void {
  withModelOptions(
    program.command("serve").description("serve a language model over HTTP, for clients of OpenAI's API"),
  )
    .option("--name <text>", "the model's name in requests (default: the folder's name)")
    .addOption(
      new Option("--port <number>", "the port; 0 selects a free port")
        .argParser(wholeNumber(0, 65_535))
        .default(8000),
    )
    .addOption(
      new Option("--host <address>", "the address to listen on; any but 127.0.0.1 requires a token").default(
        "127.0.0.1",
      ),
    )
    .option("--token <text>", "the token that clients must send (default: random, if --host requires one)")
    .option("--token-file <file>", "a file with the token, which other users of this machine do not see")
    .addOption(
      new Option("--slots <number>", "texts at a time; each takes memory for a cache")
        .argParser(wholeNumber(1, 1024))
        .default(4),
    )
    .addOption(
      new Option("--max-waiting <number>", "max. texts that wait for a slot; more are rejected with 429")
        .argParser(wholeNumber(0))
        .default(64),
    )
    .addOption(
      new Option(
        "--max-prompt <tokens>",
        "max. tokens of a prompt (default: --max-length less one)",
      ).argParser(wholeNumber(1)),
    )
    .addOption(
      new Option("--max-tokens <number>", "max. new tokens of a text (default: --max-length)").argParser(
        wholeNumber(1),
      ),
    )
    .addOption(
      new Option(
        "--max-body <size>",
        "max. size of a request (default: 64 KiB, and 16 bytes per token of --max-length)",
      ).argParser(size),
    )
    .addOption(
      new Option("--timeout <time>", "max. time from a request to the end of its texts")
        .argParser(duration)
        .default(600_000, "10m"),
    )
    .addOption(
      new Option("--drain <time>", "after SIGTERM or Ctrl-C: max. time for texts to end")
        .argParser(duration)
        .default(30_000, "30s"),
    )
    .action(async (options: CommandOptions) => end(await serve(options)));
}

/** Serves until a signal, or an error of the device. Returns the exit code. */
async function serve(options: CommandOptions): Promise<number> {
  const { host, port, maxPrompt, maxTokens, maxBody, maxWaiting, drain } = options;
  const token = tokenOf(options);
  const status = new StatusLine();
  status.show(`loading ${options.model} …`);
  const model = await openModel(options, options.slots, (text) => status.print(text));
  const stop = stopOnSignals({ withinMs: drain + closingMs, exitCode: exitCodes.stopped.code });
  try {
    const { generator, config } = model;
    const name = options.name ?? model.name;
    const server = await openModelServer({
      ...{ generator, name, host, port, maxWaiting, defaults: config.options, timeLimitMs: options.timeout },
      ...(token !== undefined && { token }),
      ...(maxPrompt !== undefined && { maxPrompt }),
      ...(maxTokens !== undefined && { maxTokens }),
      ...(maxBody !== undefined && { maxBodyBytes: maxBody }),
    });
    status.clear();
    process.stdout.write(`${name} at ${server.url}/v1\n`);
    // A token that the user has chosen is not shown.
    if (server.token !== undefined && token === undefined) process.stdout.write(`token ${server.token}\n`);
    const failure = await Promise.race([server.failure, aborted(stop.signal)]);
    status.show("waiting for the last texts …");
    await server.close(failure ? 0 : drain);
    status.end();
    if (failure) throw failure;
    return exitCodes.ok.code;
  } finally {
    status.clear();
    model.close();
    stop.close();
  }
}

/** Resolves after a signal. */
function aborted(signal: AbortSignal): Promise<undefined> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve(undefined);
    signal.addEventListener("abort", () => resolve(undefined), { once: true });
  });
}

function tokenOf({ token, tokenFile }: CommandOptions): string | undefined {
  if (tokenFile === undefined) return token;
  if (token !== undefined) throw new HoldfastError("BAD_ARGUMENT", "Pass --token or --token-file, not both.");
  return withFileError(`${tokenFile} can't be read`, tokenFile, () =>
    readRegularFile(tokenFile, maxTokenBytes).toString("utf8").trim(),
  );
}
