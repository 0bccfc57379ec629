"""The integer programs of Circinus, appendix B, as a policy; imports `compiled` and `problem`."""
