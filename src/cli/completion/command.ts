/** `holdfast completion`: prints a completion script for a shell. */

import { Argument, type Command } from "commander";
import { grammarOf } from "./grammar.js";
import { completionScript, type Shell, shells } from "./scripts.js";

const install = `
To enable completion in every new shell:
  bash   echo 'source <(holdfast completion bash)' >> ~/.bashrc
  zsh    holdfast completion zsh > "\${fpath[1]}/_holdfast"
  fish   holdfast completion fish > ~/.config/fish/completions/holdfast.fish
`;

/** Adds the command. It reads the other commands from the program when it runs. */
export function addCompletion(program: Command): void {
  program
    .command("completion")
    .description("print a completion script for a shell")
    .addArgument(new Argument("<shell>", "the shell").choices(shells))
    .addHelpText("after", install)
    .action((shell: Shell) => void process.stdout.write(completionScript(shell, grammarOf(program))));
}
