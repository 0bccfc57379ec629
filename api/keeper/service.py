"""The former name of `api.serving.service`."""

from circinus.api.serving.service import main as main
