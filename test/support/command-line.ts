/** The command lines of programs in bench/ and test/. */

import { existsSync } from "node:fs";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { type ParseArgsConfig, parseArgs } from "node:util";
import { readRepositoryFile, repositoryRoot } from "./repository.js";

type Options = NonNullable<ParseArgsConfig["options"]>;
type Values<Known extends Options> = ReturnType<typeof parseArgs<{ readonly options: Known }>>["values"];

/**
 * Reads the options of the program with this `import.meta.url`. With --help it prints how to use the program and ends the process; an unknown
 * option ends it too, with what is wrong and the options that there are.
 */
export function readOptions<const Known extends Options>(program: string, options: Known): Values<Known> {
  answerHelp(program, options);
  try {
    return parseArgs({ options }).values;
  } catch (error) {
    console.error(`${error instanceof Error ? error.message : error}\n\n${listed(options)}`);
    process.exit(2);
  }
}

/** With --help, prints how to use the program and ends the process. For programs whose words are not options. */
export function answerHelp(program: string, options: Options = {}): void {
  const words = process.argv.slice(2);
  if (!words.includes("--help") && !words.includes("-h")) return;
  console.log(usage(program, options));
  process.exit(0);
}

/** What the program's source says of itself at its beginning, and its options. */
export function usage(program: string, options: Options): string {
  return [...openingComment(program), listed(options)].join("\n\n");
}

/** Empty where only dist/ was copied to the machine. */
function openingComment(program: string): readonly string[] {
  const source = relative(join(repositoryRoot, "dist"), fileURLToPath(program)).replace(/\.js$/, ".ts");
  if (!existsSync(join(repositoryRoot, source))) return [];
  const comment = /^\/\*\*([\s\S]*?)\*\//.exec(readRepositoryFile(source))?.[1] ?? "";
  return [comment.replaceAll(/^ \* ?/gm, "").trim()];
}

function listed(options: Options): string {
  const lines = Object.entries(options).map(([name, option]) => {
    const value = option.type === "string" ? " TEXT" : "";
    const preset =
      option.default === undefined || option.default === false ? "" : `  (default: ${option.default})`;
    return `  --${name}${value}${preset}`;
  });
  return ["Options:", ...lines, "  --help"].join("\n");
}
