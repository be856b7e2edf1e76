"""What every benchmark does around its figures: demands and sweeping, the network with both ends, and the page."""

import os
from dataclasses import dataclass

from bench import command, measure, netns, origin, readme, rounds
from bench.programs import Agent
from bench.results import Results


@dataclass(frozen=True)
class Plan:
    """What a benchmark compares, and what it needs for that."""
    treatments: tuple
    programs: tuple  # of our own, in C
    ends: tuple = netns.ENDS
    agent: str = "client.py"


def begin(needed, files=0):
    """Demands root and programs, and removes what dead runs left; how many descriptors there are for each program."""
    command.demand_root_and_programs(needed)
    command.stop_on_signals()
    measure.adopt_orphans()
    command.sweep()
    return command.raise_file_limit(files)


def set_up(stack, plan, options, sizes, files):
    """The run, and what every stand begins with: network, server, client, sizes, folder and descriptors."""
    folder, content = command.temporary(stack), command.temporary(stack, origin.MEMORY)
    for name in plan.programs:
        command.build(name, folder)
    present, absent = command.available(plan.treatments, options.only)
    run = rounds.Run(options.quick, options.rounds or sizes.rounds, options.seed, os.getloadavg()[0], Results(present))
    for treatment in absent:
        run.results.remark(treatment, "LEFT OUT: its program is missing")
    network = stack.enter_context(netns.Network(plan.ends))
    server = origin.Origin(network, folder, content, sizes, files)
    stack.callback(server.close)
    client = stack.enter_context(Agent(network, "client", plan.agent, f"{folder}/client.log"))
    return run, (network, server, client, sizes, folder, files)


def finish(options, figures_known, page, markers):
    """Writes the page; a full run of everything is what the README shows between its markers."""
    command.write(options.out, page)
    everything = options.only is None and options.figures == figures_known and not options.quick
    if everything and readme.update(os.path.join(os.path.dirname(command.HERE), "README.md"), page, markers):
        command.say("README.md shows it")
