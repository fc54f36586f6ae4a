# SPDX-FileCopyrightText: 2026 the gym_objstore authors
# SPDX-License-Identifier: Apache-2.0

terraform {
  required_version = ">= 1.5"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.80, < 7.0"
    }
  }
}

provider "aws" {
  region = "us-east-1"
}

variable "oidc_provider_arn" {
  description = "ARN of the cluster's IAM OIDC provider."
  type        = string
}

module "rollouts" {
  source = "../../aws"

  bucket = "example-rl-rollouts"
  prefix = "rl"

  irsa = {
    oidc_provider_arn = var.oidc_provider_arn
    namespace         = "rl"
    service_accounts = {
      model-server     = "gym-model-server"
      inference-worker = "inference-worker"
      trainer          = "trainer"
      sweeper          = "sweeper"
    }
  }

  retention_days = {
    captures = 30
  }
}

output "exports" {
  description = "Lines for a shell."
  value       = module.rollouts.exports
}

output "gym_yaml" {
  description = "Token capture for Gym's YAML."
  value       = module.rollouts.gym_yaml
}

output "service_account_annotations" {
  description = "By identity, the annotation of its Kubernetes service account."
  value       = module.rollouts.service_account_annotations
}
