"""What a run is found by: its host, and whose it is."""

import getpass
import os
import socket
import subprocess
import sys

from runwatch_hooks.settings.machine_facts import describe_machine, host_event


def test_a_trainer_says_where_it_runs_and_as_whom() -> None:
    facts = describe_machine()

    assert facts["pid"] == os.getpid()
    assert facts["user"] == getpass.getuser()


def test_a_trainer_says_which_job_has_started_it() -> None:
    assert describe_machine("01ARYZ6S41")["job"] == "01ARYZ6S41"
    assert "job" not in describe_machine()


def test_a_rank_tells_its_host_before_the_step_that_it_trains_first() -> None:
    event = host_event(500)

    assert (event.kind, event.step) == ("host", 500)
    assert event.detail == {"hostname": socket.gethostname(), "pid": os.getpid()}


def test_a_user_without_a_name_is_left_out() -> None:
    """As in a container that runs under a number nobody gave a name to."""
    program = (
        "import os, pwd\n"
        "pwd.getpwuid = lambda number: {}[number]\n"
        "from runwatch_hooks.settings.machine_facts import describe_machine\n"
        "print('user' in describe_machine())\n"
    )
    named = ("LOGNAME", "USER", "LNAME", "USERNAME")
    environment = {name: value for name, value in os.environ.items() if name not in named}

    told = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )

    assert told.stdout == "False\n"
