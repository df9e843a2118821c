/** The commands, options and values of a commander program, as plain data for completion scripts. */

import type { Command } from "commander";
import { errorCodes } from "../../errors/index.js";

/** The values to offer: a list of words, files, folders, or none. */
export type Values =
  | { readonly kind: "words"; readonly words: readonly string[] }
  | { readonly kind: "file" | "folder" | "other" };

export interface OptionGrammar {
  /** Such as "--device", and the short form if there is one. */
  readonly names: readonly string[];
  readonly description: string;
  /** Undefined for a switch. */
  readonly values: Values | undefined;
}

export interface CommandGrammar {
  /** The words of the command, such as ["train", "crossasset"]; empty for the program. */
  readonly path: readonly string[];
  readonly description: string;
  readonly commands: readonly string[];
  readonly options: readonly OptionGrammar[];
  readonly arguments: readonly Values[];
}

/** The program and all its commands. */
export function grammarOf(command: Command, path: readonly string[] = []): readonly CommandGrammar[] {
  const help = command.createHelp();
  const commands = help.visibleCommands(command);
  const current: CommandGrammar = {
    path,
    description: command.description(),
    commands: commands.map((child) => child.name()),
    options: help.visibleOptions(command).map(({ long, short, description, flags, argChoices }) => ({
      names: [long, short].filter((name) => name !== undefined && name !== null),
      description,
      values: /[<[]/.test(flags) ? valuesOf(placeholderIn(flags), argChoices) : undefined,
    })),
    arguments: command.registeredArguments.map((argument) => valuesOf(argument.name(), argument.argChoices)),
  };
  // `help` has no commands or options.
  const children = commands.filter((child) => child.name() !== "help");
  return [current, ...children.flatMap((child) => grammarOf(child, [...path, child.name()]))];
}

/** `--bars <file>` → file */
function placeholderIn(flags: string): string {
  return /[<[]([^\]>]+)[\]>]/.exec(flags)?.[1] ?? "";
}

/** By the choices, or by the name of the placeholder. */
function valuesOf(placeholder: string, choices: readonly string[] | undefined): Values {
  if (choices) return { kind: "words", words: choices };
  if (placeholder === "file") return { kind: "file" };
  if (placeholder === "folder" || placeholder === "run") return { kind: "folder" };
  if (placeholder === "code") return { kind: "words", words: Object.keys(errorCodes) };
  return { kind: "other" };
}
