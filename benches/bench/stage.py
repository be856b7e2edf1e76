"""Setup and teardown of the benchmarks: requirements, cleanup of dead runs, the network with both ends, and the
page."""

import os
from dataclasses import dataclass

from bench import command, measure, netns, origin, readme, rounds
from bench.programs import Agent
from bench.results import Results


@dataclass(frozen=True)
class Plan:
    """The treatments and requirements of a benchmark."""
    treatments: tuple
    programs: tuple  # C programs of the benchmarks
    ends: tuple = netns.ENDS
    agent: str = "client.py"


def begin(needed, files=0):
    """Checks for root and programs, and removes the remains of dead runs. Returns the maximum number of descriptors per
    program."""
    command.demand_root_and_programs(needed)
    command.stop_on_signals()
    measure.adopt_orphans()
    command.sweep()
    return command.raise_file_limit(files)


def set_up(stack, plan, options, sizes, files):
    """Yields the run, and the common parts of all stands: network, server, client, sizes, directory and descriptors."""
    folder, content = command.temporary(stack), command.temporary(stack, origin.MEMORY)
    for name in plan.programs:
        command.build(name, folder)
    present, absent = command.available(plan.treatments, options.only)
    run = rounds.Run(options.quick, options.rounds or sizes.rounds, options.seed, os.getloadavg()[0], Results(present),
                     default_control=options.default_control)
    for treatment in absent:
        run.results.remark(treatment, "LEFT OUT: its program is missing")
    network = stack.enter_context(netns.Network(plan.ends, options.default_control))
    server = origin.Origin(network, folder, content, sizes, files)
    stack.callback(server.close)
    client = stack.enter_context(Agent(network, "client", plan.agent, f"{folder}/client.log"))
    return run, (network, server, client, sizes, folder, files)


def finish(options, figures_known, page, markers):
    """Writes the page. A complete run also updates benches/README.md."""
    command.write(options.out, page)
    everything = options.only is None and options.figures == figures_known and not options.quick
    if everything and readme.update(os.path.join(command.HERE, "README.md"), page, markers):
        command.say("benches/README.md shows it")
