"""Pickles datasets in a driver that is traced, and then is not any more. Prints the sizes of the pickles, and what they
name of tracing. The argument is the address of the cluster.
"""

import json
import re
import sys

import ray
from ray import cloudpickle, data

from ray_tracing_hooks import _startup

data.DataContext.get_current().enable_progress_bars = False
ray.init(address=sys.argv[1], log_to_driver=False)
planned = data.range(4, override_num_blocks=1).map_batches(lambda batch: batch)
things = [planned, planned.materialize(), planned.iterator()]


def pickles():
    return [cloudpickle.dumps(thing) for thing in things]


traced = pickles()
_startup.stop()
untraced = pickles()
sizes = [len(each) for each in traced]
named = [text.decode() for each in traced for text in re.findall(rb"\w*tracing\w*", each)]
print("RESULT " + json.dumps([sizes, [len(each) for each in untraced], named]))
