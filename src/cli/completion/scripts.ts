/**
 * Completion scripts. Each walks the words so far to the command that they name, passing over the values of options, and offers
 * what can come next there. A script is made of tables: the grammar, printed in the shell's own language.
 */

import type { CommandGrammar, OptionGrammar, Values } from "./grammar.js";

export const shells = ["bash", "zsh", "fish"] as const;
export type Shell = (typeof shells)[number];

export function completionScript(shell: Shell, grammar: readonly CommandGrammar[]): string {
  return { bash, zsh, fish }[shell](grammar);
}

/** Words of the path so far, as the scripts keep it: "train crossasset". */
const pathOf = ({ path }: CommandGrammar): string => path.join(" ");

/** "train crossasset --device" for each option that takes a value. */
function valueOptions(grammar: readonly CommandGrammar[]): readonly (readonly [string, OptionGrammar])[] {
  return grammar.flatMap((command) =>
    command.options.flatMap((option) =>
      option.values ? option.names.map((name) => [`${pathOf(command)} ${name}`.trim(), option] as const) : [],
    ),
  );
}

/** The lines that find `path`, common to bash and zsh, from `word` after `word`. */
function walkCases(grammar: readonly CommandGrammar[], indent: string): string {
  const commands = grammar.map(pathOf).filter((path) => path !== "");
  const options = valueOptions(grammar).map(([place]) => place);
  return [
    `${commands.map(quoted).join("|")}) path="\${path:+$path }$word" ;;`,
    `${options.map(quoted).join("|")}) i=$((i + 1)) ;;`,
  ]
    .map((line) => indent + line)
    .join("\n");
}

function bash(grammar: readonly CommandGrammar[]): string {
  const offer = (values: Values): string => {
    if (values.kind === "words")
      return `COMPREPLY=($(compgen -W ${quoted(values.words.join(" "))} -- "$cur"))`;
    if (values.kind === "other") return "COMPREPLY=()";
    return `local IFS=$'\\n'; compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen ${values.kind === "file" ? "-f" : "-d"} -- "$cur"))`;
  };
  return `# bash completion of holdfast
_holdfast() {
  local cur=\${COMP_WORDS[COMP_CWORD]} path= word= i
  local before=\${COMP_WORDS[COMP_CWORD - 1]}
  COMPREPLY=()
  # "--device=c" comes as three words.
  if [ "$cur" = "=" ]; then cur=
  elif [ "$before" = "=" ]; then before=\${COMP_WORDS[COMP_CWORD - 2]}; fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=\${COMP_WORDS[i]}
    case "\${path:+$path }$word" in
${walkCases(grammar, "      ")}
    esac
  done
  case "\${path:+$path }$before" in
${valueOptions(grammar)
  .map(([place, { values }]) => `    ${quoted(place)}) ${values ? offer(values) : ":"}; return ;;`)
  .join("\n")}
  esac
  case "$path" in
${grammar
  .map((command) => {
    const options = command.options.flatMap(({ names }) => names).join(" ");
    const [argument] = command.arguments;
    const next = argument ? offer(argument) : offer({ kind: "words", words: command.commands });
    return `    ${quoted(pathOf(command))})
      case "$cur" in
        -*) ${offer({ kind: "words", words: [options] })} ;;
        *) ${next} ;;
      esac ;;`;
  })
  .join("\n")}
  esac
}
complete -F _holdfast holdfast
`;
}

function zsh(grammar: readonly CommandGrammar[]): string {
  const offer = (values: Values): string => {
    if (values.kind === "words") return `compadd -- ${values.words.map(quoted).join(" ")}`;
    if (values.kind === "other") return "_message value";
    return values.kind === "file" ? "_files" : "_files -/";
  };
  const described = (entries: readonly (readonly [string, string])[]): string =>
    `entries=(${entries.map(([name, text]) => quoted(`${name.replaceAll(":", "\\:")}:${text}`)).join(" ")}); _describe value entries`;
  const descriptions = new Map(grammar.map((command) => [pathOf(command), command.description]));
  return `#compdef holdfast
# zsh completion of holdfast
_holdfast() {
  local cur=\${words[CURRENT]} before=\${words[CURRENT - 1]} path= word= i
  local -a entries
  for ((i = 2; i < CURRENT; i++)); do
    word=\${words[i]}
    case "\${path:+$path }$word" in
${walkCases(grammar, "      ").replaceAll("|", " | ")}
    esac
  done
  case "\${path:+$path }$before" in
${valueOptions(grammar)
  .map(([place, { values }]) => `    ${quoted(place)}) ${values ? offer(values) : ":"}; return ;;`)
  .join("\n")}
  esac
  case "$path" in
${grammar
  .map((command) => {
    const options = command.options.flatMap(({ names, description }) =>
      names.map((name) => [name, description] as const),
    );
    const [argument] = command.arguments;
    const commands = command.commands.map(
      (name) => [name, descriptions.get([...command.path, name].join(" ")) ?? ""] as const,
    );
    return `    ${quoted(pathOf(command))})
      if [[ "$cur" == -* ]]; then ${described(options)}
      else ${argument ? offer(argument) : described(commands)}; fi ;;`;
  })
  .join("\n")}
  esac
}
if [ "$funcstack[1]" = "_holdfast" ]; then _holdfast "$@"; else compdef _holdfast holdfast; fi
`;
}

function fish(grammar: readonly CommandGrammar[]): string {
  const offer = (values: Values | undefined): string => {
    if (!values) return "";
    if (values.kind === "words") return ` -x -a ${quoted(values.words.join(" "))}`;
    if (values.kind === "other") return " -x";
    return values.kind === "file" ? " -r -F" : " -x -a '(__fish_complete_directories)'";
  };
  const commands = grammar.map(pathOf).filter((path) => path !== "");
  const options = valueOptions(grammar).map(([place]) => place);
  const lines = grammar.flatMap((command) => {
    const here = `complete -c holdfast -n ${quoted(`__holdfast_at ${quoted(pathOf(command))}`)}`;
    const below = command.commands.map((name) => {
      const description = grammar.find(({ path }) => path.join(" ") === [...command.path, name].join(" "));
      return `${here} -a ${quoted(name)} -d ${quoted(description?.description ?? "")}`;
    });
    const own = command.options.map(({ names, description, values }) => {
      const flags = names.map((name) =>
        name.startsWith("--") ? `-l ${name.slice(2)}` : `-s ${name.slice(1)}`,
      );
      return `${here} ${flags.join(" ")} -d ${quoted(description)}${offer(values)}`;
    });
    const [argument] = command.arguments;
    return [
      ...below,
      ...own,
      ...(argument && argument.kind !== "other" ? [`${here}${offer(argument)}`] : []),
    ];
  });
  return `# fish completion of holdfast
function __holdfast_at
  set -l path
  set -l is_value 0
  for word in (commandline -opc)[2..-1]
    if test $is_value = 1
      set is_value 0
      continue
    end
    switch (string join ' ' -- $path $word)
      case ${commands.map(quoted).join(" ")}
        set -a path $word
      case ${options.map(quoted).join(" ")}
        set is_value 1
    end
  end
  test (string join ' ' -- $path) = "$argv[1]"
end
complete -c holdfast -f
${lines.join("\n")}
`;
}

/** In single quotes, as all three shells have them. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
