/** What there is to complete: the commands, options and values of a commander program, as plain data. */

import type { Command } from "commander";
import { errorCodes } from "../../errors/index.js";

/** What a value can be: one of some words, a file, a folder, or something that nobody can guess. */
export type Values =
  | { readonly kind: "words"; readonly words: readonly string[] }
  | { readonly kind: "file" | "folder" | "other" };

export interface OptionGrammar {
  /** As "--device", and "-v" where there is a short one. */
  readonly names: readonly string[];
  readonly description: string;
  /** Undefined for a switch. */
  readonly values: Values | undefined;
}

export interface CommandGrammar {
  /** The words that lead to it: ["train", "crossasset"]; none for the program itself. */
  readonly path: readonly string[];
  readonly description: string;
  readonly commands: readonly string[];
  readonly options: readonly OptionGrammar[];
  readonly arguments: readonly Values[];
}

/** The program and all commands below it. */
export function grammarOf(command: Command, path: readonly string[] = []): readonly CommandGrammar[] {
  const help = command.createHelp();
  const commands = help.visibleCommands(command);
  const own: CommandGrammar = {
    path,
    description: command.description(),
    commands: commands.map((one) => one.name()),
    options: help.visibleOptions(command).map(({ long, short, description, flags, argChoices }) => ({
      names: [long, short].filter((name) => name !== undefined && name !== null),
      description,
      values: /[<[]/.test(flags) ? valuesOf(placeholderIn(flags), argChoices) : undefined,
    })),
    arguments: command.registeredArguments.map((one) => valuesOf(one.name(), one.argChoices)),
  };
  // `help` takes the names of the commands beside it, and leads nowhere else.
  const below = commands.filter((one) => one.name() !== "help");
  return [own, ...below.flatMap((one) => grammarOf(one, [...path, one.name()]))];
}

/** `--bars <file>` → file */
function placeholderIn(flags: string): string {
  return /[<[]([^\]>]+)[\]>]/.exec(flags)?.[1] ?? "";
}

/** By the choices, or by what the placeholder calls the value. */
function valuesOf(placeholder: string, choices: readonly string[] | undefined): Values {
  if (choices) return { kind: "words", words: choices };
  if (placeholder === "file") return { kind: "file" };
  if (placeholder === "folder" || placeholder === "run") return { kind: "folder" };
  if (placeholder === "code") return { kind: "words", words: Object.keys(errorCodes) };
  return { kind: "other" };
}
