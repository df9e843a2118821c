/**
 * Completion scripts for shells. A script finds the command in the words so far, skips the values of options, and offers the next
 * words. It consists of tables generated from the grammar.
 */

import type { CommandGrammar, OptionGrammar, Values } from "./grammar.js";

export const shells = ["bash", "zsh", "fish"] as const;
export type Shell = (typeof shells)[number];

export function completionScript(shell: Shell, grammar: readonly CommandGrammar[]): string {
  return { bash, zsh, fish }[shell](grammar);
}

/** The path as the scripts store it: "train crossasset". */
const pathOf = ({ path }: CommandGrammar): string => path.join(" ");

/** Every option that takes a value, keyed like "train crossasset --device". */
function valueOptions(grammar: readonly CommandGrammar[]): readonly (readonly [string, OptionGrammar])[] {
  return grammar.flatMap((command) =>
    command.options.flatMap((option) =>
      option.values ? option.names.map((name) => [`${pathOf(command)} ${name}`.trim(), option] as const) : [],
    ),
  );
}

/** The cases that extend `path` by the next `word`, for bash and zsh. */
function pathCases(grammar: readonly CommandGrammar[], indent: string): string {
  const commands = grammar.map(pathOf).filter((path) => path !== "");
  const options = valueOptions(grammar).map(([key]) => key);
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
${pathCases(grammar, "      ")}
    esac
  done
  case "\${path:+$path }$before" in
${valueOptions(grammar)
  .map(([key, { values }]) => `    ${quoted(key)}) ${values ? offer(values) : ":"}; return ;;`)
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
${pathCases(grammar, "      ").replaceAll("|", " | ")}
    esac
  done
  case "\${path:+$path }$before" in
${valueOptions(grammar)
  .map(([key, { values }]) => `    ${quoted(key)}) ${values ? offer(values) : ":"}; return ;;`)
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
  const options = valueOptions(grammar).map(([key]) => key);
  const lines = grammar.flatMap((command) => {
    const here = `complete -c holdfast -n ${quoted(`__holdfast_at ${quoted(pathOf(command))}`)}`;
    const children = command.commands.map((name) => {
      const description = grammar.find(({ path }) => path.join(" ") === [...command.path, name].join(" "));
      return `${here} -a ${quoted(name)} -d ${quoted(description?.description ?? "")}`;
    });
    const options = command.options.map(({ names, description, values }) => {
      const flags = names.map((name) =>
        name.startsWith("--") ? `-l ${name.slice(2)}` : `-s ${name.slice(1)}`,
      );
      return `${here} ${flags.join(" ")} -d ${quoted(description)}${offer(values)}`;
    });
    const [argument] = command.arguments;
    return [
      ...children,
      ...options,
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

/** In single quotes, which all three shells understand. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
