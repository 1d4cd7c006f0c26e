//! The loop with the types of its model and hooks.

use turnstate::{LoopConfig, ScriptedModel, Start, agent_loop, agent_loop_continue, agent_loop_from};

use crate::cast::scripted_model;
use crate::check_engine;
use crate::compare::Observed;
use crate::custom::Msg;
use crate::drive::drive;
use crate::fixture::{Fixture, Request};
use crate::recorder::recorded;
use crate::stage::{Engine, Stage, play};

struct StaticLoop {
    model: ScriptedModel,
}

impl Engine for StaticLoop {
    fn run(&mut self, stage: &mut Stage<'_>, start: Start<Msg>) {
        let (config, model, hooks) = (loop_config(stage), self.model.clone(), stage.cast.hooks());
        // Each way in has a type of its own.
        match start {
            Start::Prompt(messages) => drive(stage, agent_loop(messages, config, model, hooks).unwrap()),
            Start::Continue => drive(stage, agent_loop_continue(config, model, hooks).unwrap()),
            other => drive(stage, agent_loop_from(other, config, model, hooks).unwrap()),
        }
    }

    fn requests(self) -> Vec<Request> {
        recorded(&self.model.requests())
    }
}

/// What a loop of this stage is run with.
pub(crate) fn loop_config(stage: &Stage<'_>) -> LoopConfig<Msg> {
    let plan = stage.plan();
    let mut config = LoopConfig::new(turnstate::Model::clone(&plan.model));
    config.plan = plan;
    config.queues = stage.queues.clone();
    config.cancel = stage.cancel.clone();
    config.clock = || 0;
    config
}

/// Plays a scenario.
pub(crate) fn run(fixture: &Fixture) -> Observed {
    let model = scripted_model(fixture);
    play(fixture, StaticLoop { model })
}

#[test]
#[cfg_attr(
    not(feature = "jsonschema"),
    ignore = "arguments are not validated without jsonschema"
)]
fn conformance_static_loop() {
    check_engine(run).unwrap_or_else(|report| panic!("{report}"));
}
