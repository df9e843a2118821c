/** `holdfast completion`: prints the script by which a shell completes this command. */

import { Argument, type Command } from "commander";
import { grammarOf } from "./grammar.js";
import { completionScript, type Shell, shells } from "./scripts.js";

const install = `
To have it in every new shell:
  bash   echo 'source <(holdfast completion bash)' >> ~/.bashrc
  zsh    holdfast completion zsh > "\${fpath[1]}/_holdfast"
  fish   holdfast completion fish > ~/.config/fish/completions/holdfast.fish
`;

/** Adds the command; what it knows of the others, it asks the program when it is run. */
export function addCompletion(program: Command): void {
  program
    .command("completion")
    .description("print a script that lets a shell complete holdfast commands")
    .addArgument(new Argument("<shell>", "the shell").choices(shells))
    .addHelpText("after", install)
    .action((shell: Shell) => void process.stdout.write(completionScript(shell, grammarOf(program))));
}
